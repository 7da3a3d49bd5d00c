//! A table in plain text.

/// Where a column's texts stand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A table that drops columns where there is no room for all, and never cuts a text.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug)]
struct Column {
    title: &'static str,
    align: Align,
    /// The higher, the sooner it is dropped; 0 is always shown.
    dispensable: u8,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { columns: Vec::new(), rows: Vec::new() }
    }

    /// Adds a column that is always shown.
    pub(crate) fn column(self, title: &'static str, align: Align) -> Self {
        self.dispensable(title, align, 0)
    }

    /// Adds a column that is dropped in a narrow terminal, the highest number first.
    pub(crate) fn dispensable(mut self, title: &'static str, align: Align, rank: u8) -> Self {
        self.columns.push(Column { title, align, dispensable: rank });
        self
    }

    /// Adds a row, a text for each column.
    pub(crate) fn row(&mut self, texts: Vec<String>) {
        // A line break from a database must not break the table.
        let clean = |text: String| text.replace(|c: char| c.is_control(), " ");
        self.rows.push(texts.into_iter().map(clean).collect());
    }

    /// The text, as lines.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| self.width(at)).collect();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |shown: &[usize]| {
            shown.iter().map(|at| widths[*at] + 2).sum::<usize>().saturating_sub(2)
        };
        while let Some(width) = width
            && needed(&shown) > width
        {
            let next = shown.iter().copied().max_by_key(|at| self.columns[*at].dispensable);
            let Some(next) = next.filter(|at| self.columns[*at].dispensable > 0) else { break };
            shown.retain(|at| *at != next);
        }
        let mut text = String::new();
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        self.line(&titles, &shown, &widths, &mut text);
        for row in &self.rows {
            let row: Vec<&str> = row.iter().map(String::as_str).collect();
            self.line(&row, &shown, &widths, &mut text);
        }
        text
    }

    fn width(&self, at: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(self.columns[at].title.len())
    }

    fn line(&self, cells: &[&str], shown: &[usize], widths: &[usize], text: &mut String) {
        let mut line = String::new();
        for at in shown {
            let cell = cells.get(*at).copied().unwrap_or_default();
            let room = " ".repeat(widths[*at].saturating_sub(cell.chars().count()));
            match self.columns[*at].align {
                Align::Left => line.extend([cell, &room]),
                Align::Right => line.extend([&room, cell]),
            }
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new()
            .column("ID", Align::Left)
            .dispensable("TYPE", Align::Left, 2)
            .dispensable("N", Align::Right, 1);
        table.row(vec!["a-long-id".into(), "order.placed".into(), "7".into()]);
        table.row(vec!["b".into(), "x\ny".into(), "12".into()]);
        table
    }

    #[test]
    fn columns_line_up_and_a_line_break_does_not_break_the_table() {
        assert_eq!(
            table().render(None),
            "ID         TYPE           N\n\
             a-long-id  order.placed   7\n\
             b          x y           12\n"
        );
    }

    #[test]
    fn a_narrow_terminal_loses_columns_and_never_part_of_an_id() {
        assert_eq!(table().render(Some(20)), "ID          N\na-long-id   7\nb          12\n");
        assert_eq!(table().render(Some(3)), "ID\na-long-id\nb\n");
    }
}
