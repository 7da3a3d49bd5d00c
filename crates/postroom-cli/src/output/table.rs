//! A table in plain text.

use super::Colour;
use std::fmt::Write as _;

/// Where a column's texts stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table that cuts long texts where there is no room for all of them, and drops no column.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Column {
    title: &'static str,
    align: Align,
    cut: Cut,
}

/// How a column gives way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cut {
    /// Not at all.
    Never,
    /// Its texts end in `…`, and keep this many characters where that is possible. Where all have
    /// to give way, it keeps this many times the room of others.
    Text { least: usize, weight: usize },
    /// Ids lose their ends as far as those shown differ: what is left can still be typed.
    Id,
}

/// What is left of a text in a terminal that is very narrow.
const TEXT_LEAST: usize = 4;

/// What is left of an id, however few there are.
const ID_LEAST: usize = 13;

/// What stands between two columns.
const GAP: usize = 2;

impl Table {
    pub(crate) fn new() -> Self {
        Self { columns: Vec::new(), rows: Vec::new() }
    }

    /// Adds a column that is always shown whole.
    pub(crate) fn column(self, title: &'static str, align: Align) -> Self {
        self.with(title, align, Cut::Never)
    }

    /// Adds a column of texts that are cut in a narrow terminal: to `least` characters, and
    /// further only when all columns are down to that.
    pub(crate) fn text(self, title: &'static str, least: usize) -> Self {
        self.with(title, Align::Left, Cut::Text { least, weight: 1 })
    }

    /// Adds a column of texts that say more than those of others, and keep more room.
    pub(crate) fn long_text(self, title: &'static str, least: usize) -> Self {
        self.with(title, Align::Left, Cut::Text { least, weight: 2 })
    }

    /// Adds a column of ids, which are cut to what tells them apart.
    pub(crate) fn id(self, title: &'static str) -> Self {
        self.with(title, Align::Left, Cut::Id)
    }

    fn with(mut self, title: &'static str, align: Align, cut: Cut) -> Self {
        self.columns.push(Column { title, align, cut });
        self
    }

    /// Adds a row, a text for each column.
    pub(crate) fn row(&mut self, texts: Vec<String>) {
        self.rows.push(texts.iter().map(|text| super::printable(text)).collect());
    }

    /// The text, as lines.
    pub(crate) fn render(&self, width: Option<usize>, is_coloured: bool) -> String {
        let widths = self.widths(width);
        let mut text = String::new();
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        self.line(&titles, &widths, false, &mut text);
        for row in &self.rows {
            let row: Vec<&str> = row.iter().map(String::as_str).collect();
            self.line(&row, &widths, is_coloured, &mut text);
        }
        text
    }

    /// How wide each column is, in a terminal of this width.
    fn widths(&self, terminal: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.columns.len()).map(|at| self.wanted(at)).collect();
        let Some(terminal) = terminal else { return widths };
        let missing = |widths: &[usize]| {
            let needed: usize = widths.iter().map(|width| width + GAP).sum();
            needed.saturating_sub(GAP).saturating_sub(terminal)
        };
        if missing(&widths) > 0 {
            for (at, column) in self.columns.iter().enumerate() {
                if column.cut == Cut::Id {
                    widths[at] = self.distinct(at).min(widths[at]);
                }
            }
        }
        let weight = |at: usize| match self.columns[at].cut {
            Cut::Text { weight, .. } => weight,
            Cut::Never | Cut::Id => 1,
        };
        // The widest first, so that short texts stay whole for as long as possible.
        let mut shrink = |least: &dyn Fn(&Column) -> Option<usize>| {
            while missing(&widths) > 0 {
                let wide = |at: &usize| least(&self.columns[*at]).is_some_and(|n| widths[*at] > n);
                let widest =
                    (0..widths.len()).filter(wide).max_by_key(|at| widths[*at] / weight(*at));
                let Some(widest) = widest else { return };
                widths[widest] -= 1;
            }
        };
        shrink(&|column| match column.cut {
            Cut::Text { least, .. } => Some(least),
            Cut::Never | Cut::Id => None,
        });
        shrink(&|column| matches!(column.cut, Cut::Text { .. }).then_some(TEXT_LEAST));
        widths
    }

    fn cells(&self, at: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(move |row| row.get(at)).map(String::as_str)
    }

    fn wanted(&self, at: usize) -> usize {
        let widest = self.cells(at).map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).max(self.columns[at].title.len())
    }

    /// How many characters tell the ids of a column apart.
    fn distinct(&self, at: usize) -> usize {
        let mut ids: Vec<&str> = self.cells(at).collect();
        ids.sort_unstable();
        ids.dedup();
        let common = |pair: &[&str]| {
            pair[0].chars().zip(pair[1].chars()).take_while(|(one, other)| one == other).count()
        };
        ids.windows(2).map(|pair| common(pair) + 1).max().unwrap_or(0).max(ID_LEAST)
    }

    fn line(&self, cells: &[&str], widths: &[usize], is_coloured: bool, text: &mut String) {
        let mut line = String::new();
        for (at, column) in self.columns.iter().enumerate() {
            let cell = cut(cells.get(at).copied().unwrap_or_default(), widths[at], column.cut);
            let room = " ".repeat(widths[at].saturating_sub(cell.chars().count()));
            let colour = Colour::of(&cell).filter(|_| is_coloured);
            let cell = colour.map_or(cell.clone(), |colour| colour.paint(&cell));
            let _ = match column.align {
                Align::Left => write!(line, "{cell}{room}  "),
                Align::Right => write!(line, "{room}{cell}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn cut(text: &str, width: usize, cut: Cut) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    match cut {
        Cut::Never => text.to_owned(),
        Cut::Id => text.chars().take(width).collect(),
        Cut::Text { .. } => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table =
            Table::new().id("ID").column("N", Align::Right).text("TYPE", 6).long_text("ERROR", 8);
        let texts = |texts: [&str; 4]| texts.map(str::to_owned).to_vec();
        table.row(texts(["01a1e1ac-b8ca-1", "7", "order.placed", "no answer within 5 s"]));
        table.row(texts(["01a1e1ac-b8cb-2", "12", "x\ny", ""]));
        table
    }

    #[test]
    fn columns_line_up_and_a_line_break_does_not_break_the_table() {
        assert_eq!(
            table().render(None, false),
            "ID                N  TYPE          ERROR\n\
             01a1e1ac-b8ca-1   7  order.placed  no answer within 5 s\n\
             01a1e1ac-b8cb-2  12  x y\n"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_texts_and_ids_to_what_tells_them_apart() {
        assert_eq!(
            table().render(Some(40), false),
            "ID              N  TYPE    ERROR\n\
             01a1e1ac-b8ca   7  order…  no answer wi…\n\
             01a1e1ac-b8cb  12  x y\n"
        );
        let narrow = table().render(Some(30), false);
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
        assert!(narrow.contains("ERROR") && narrow.contains("ord…"), "{narrow}");
    }

    #[test]
    fn a_status_has_its_colour_where_colour_is_wanted() {
        let mut table = Table::new().column("STATUS", Align::Left).column("N", Align::Right);
        table.row(vec!["DEAD".to_owned(), "1".to_owned()]);
        assert_eq!(table.render(None, true), "STATUS  N\n\x1b[31mDEAD\x1b[0m    1\n");
    }
}
