//! A table as the catalogue of its database has it.

/// A table as it stands.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// As a statement names it, with its schema where there are some, quoted where it must be.
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    /// The columns of its primary key.
    pub(crate) primary_key: Vec<String>,
    /// Those of its other unique indexes.
    pub(crate) unique: Vec<Vec<String>>,
    /// The first columns of all its indexes.
    pub(crate) indexed: Vec<String>,
    /// Whether some index is of some rows only.
    pub(crate) has_partial_index: bool,
    /// Whether it is made of partitions, into which rows can be inserted beside it.
    pub(crate) is_partitioned: bool,
    /// Whether its columns are named in any case.
    pub(crate) ignores_case: bool,
    /// The triggers that fire for everybody.
    pub(crate) triggers: Vec<String>,
}

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Its type without a length.
    pub(crate) kind: String,
    /// Unless it is the type's own.
    pub(crate) collation: Option<String>,
    pub(crate) is_required: bool,
    /// The most characters of a text, where there is a limit.
    pub(crate) length: Option<i32>,
    /// Whether it has a value where an INSERT names none.
    pub(crate) has_default: bool,
}

impl Table {
    /// The column of this name. Some databases take a name in any case.
    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        let is_it = |column: &&Column| column.name == name;
        let is_like_it =
            |column: &&Column| self.ignores_case && column.name.eq_ignore_ascii_case(name);
        self.columns.iter().find(is_it).or_else(|| self.columns.iter().find(is_like_it))
    }
}
