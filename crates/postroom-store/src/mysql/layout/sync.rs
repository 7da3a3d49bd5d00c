//! Finding and mending where the table and its ledger have come apart: what no trigger saw.

use super::Foreign;
use super::fields::STATE;
use crate::mysql::literal::{self, text};
use crate::mysql::session::Session;
use crate::mysql::{execute, fetch};
use postroom_core::Reconciled;
use sqlx::{Error, Row as _};

/// How many rows are mended in one transaction.
const ROWS: usize = 500;
/// How many rows the ledger is told of at once. It keeps others from numbering theirs meanwhile.
const FILLED: usize = 5_000;

/// Changes made here are changes by hand to the ledger: it follows them, and writes nothing back.
const BY_HAND: &str = "SET @postroom_relay = NULL";
const OWN: &str = "SET @postroom_relay = 1";

impl Foreign {
    /// The ledger's rows for rows of the table that are to be delivered and that it does not know.
    fn filling(&self, all: bool) -> String {
        let said: Vec<_> = STATE.iter().map(|name| self.said(name)).collect();
        format!(
            "INSERT IGNORE INTO integration_outbox (id, {}, {})\nSELECT {}, {}, {}\n{}\nLIMIT {FILLED}",
            self.key.names().join(", "),
            STATE.join(", "),
            self.key.id(),
            self.key.of_row("m"),
            said.join(", "),
            self.unknown(all),
        )
    }

    fn unknown(&self, all: bool) -> String {
        // What is dead is not looked for where an index finds the open ones.
        let open = self.layout.state.open.as_deref().filter(|_| !all);
        let open = open.map_or_else(String::new, |open| format!("({open}) AND "));
        format!(
            "FROM {} AS m\nWHERE {open}{} IN ('PENDING', 'FAILED', 'DEAD')\n  \
             AND NOT EXISTS (SELECT 1 FROM integration_outbox AS n WHERE n.id = {})",
            self.table.name,
            self.said("status"),
            self.key.id(),
        )
    }

    fn unlike(&self) -> String {
        let (status, integration) = (self.said("status"), self.said("integration_type"));
        let open = "('PENDING', 'FAILED')";
        let state = if self.layout.keeps_failures() {
            let due = match &self.layout.state.due_at {
                // As exact as any layout writes it.
                Some(_) => format!(
                    " OR ({status} IN {open} AND ABS(TIMESTAMPDIFF(MICROSECOND, n.due_at, {})) > 2000)",
                    self.said("due_at")
                ),
                None => String::new(),
            };
            format!(
                "NOT IF(n.status IN {open} AND {status} IN {open}, TRUE, n.status = {status}){due}"
            )
        } else {
            format!(
                "IF({status} = 'PENDING', n.status NOT IN ('PENDING', 'FAILED', 'DEAD'), n.status <> {status})"
            )
        };
        format!(
            "FROM integration_outbox AS n STRAIGHT_JOIN {} AS m ON {}\n\
             WHERE ({state} OR n.integration_type <> {integration})",
            self.table.name,
            self.key.same_as("n")
        )
    }

    fn gone(&self) -> String {
        format!(
            "FROM integration_outbox AS n\nWHERE n.status IN ('PENDING', 'FAILED', 'DEAD', 'GONE')\n  \
             AND NOT EXISTS (SELECT 1 FROM {} AS m WHERE {})",
            self.table.name,
            self.key.same_as("n")
        )
    }

    /// Counts what [`sync`] would mend.
    pub(in crate::mysql) async fn count(
        &self,
        connection: &mut Session,
    ) -> Result<Reconciled, Error> {
        let mut counts = [0; 3];
        for (count, from) in
            counts.iter_mut().zip([self.unknown(false), self.unlike(), self.gone()])
        {
            let rows = fetch(connection, format!("SELECT COUNT(*) {from}")).await?;
            let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
            *count = u64::try_from(found).unwrap_or(0);
        }
        let [made, followed, removed] = counts;
        Ok(Reconciled { made, followed, removed, ..Reconciled::default() })
    }

    /// Makes the ledger know the rows that it does not know, say what rows say by now, and forget those that are gone.
    /// In small transactions. What somebody is changing at this moment is left for the next time.
    /// With `all`, what is dead too.
    pub(in crate::mysql) async fn sync(
        &self,
        connection: &mut Session,
        clause: &str,
        all: bool,
    ) -> Result<Reconciled, Error> {
        execute(connection, BY_HAND.to_owned()).await?;
        let done = self.mend(connection, clause, all).await;
        execute(connection, OWN.to_owned()).await?;
        done
    }

    async fn mend(
        &self,
        connection: &mut Session,
        clause: &str,
        all: bool,
    ) -> Result<Reconciled, Error> {
        // What is gone first: it may have been known by a key that was cut.
        let removed = self.each(connection, &self.gone(), clause, Mend::Forget).await?;
        let mut mended = Reconciled { removed, ..Reconciled::default() };
        loop {
            let made = execute(connection, self.filling(all)).await?;
            mended.made += made;
            if made == 0 {
                break;
            }
        }
        mended.followed = self.each(connection, &self.unlike(), clause, Mend::Follow).await?;
        Ok(mended)
    }

    /// Finds rows without a lock, locks them, looks again, and mends them.
    async fn each(
        &self,
        connection: &mut Session,
        from: &str,
        clause: &str,
        mend: Mend,
    ) -> Result<u64, Error> {
        let said = [
            self.said("status"),
            self.said("integration_type"),
            format!("CAST({} AS CHAR)", self.said("due_at")),
            format!("CAST({} AS SIGNED)", self.said("attempts")),
        ];
        let said = match mend {
            Mend::Follow => format!(", {}", said.join(", ")),
            Mend::Forget => String::new(),
        };
        let (mut after, mut mended) = (i64::MIN, 0);
        loop {
            let sql =
                format!("SELECT n.seq {from} AND n.seq > {after} ORDER BY n.seq LIMIT {ROWS}");
            let found = fetch(connection, sql).await?;
            let found = found.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
            let Some(last) = found.last() else { return Ok(mended) };
            after = *last;
            execute(connection, "BEGIN".to_owned()).await?;
            let seqs = literal::numbers(found);
            let sql = format!("SELECT n.seq{said} {from} AND n.seq IN ({seqs}) {clause}");
            for row in fetch(connection, sql).await? {
                let seq: i64 = row.try_get(0)?;
                let sql = match mend {
                    Mend::Follow => {
                        let (status, integration): (String, String) =
                            (row.try_get(1)?, row.try_get(2)?);
                        let (due_at, attempts): (String, i64) = (row.try_get(3)?, row.try_get(4)?);
                        format!(
                            "UPDATE integration_outbox SET status = {}, integration_type = {}, due_at = {}, \
                             attempts = {attempts}, updated_at = UTC_TIMESTAMP(6) WHERE seq = {seq}",
                            text(&status),
                            text(&integration),
                            text(&due_at)
                        )
                    }
                    Mend::Forget => format!("DELETE FROM integration_outbox WHERE seq = {seq}"),
                };
                mended += execute(connection, sql).await?;
            }
            execute(connection, "COMMIT".to_owned()).await?;
        }
    }
}

#[derive(Clone, Copy)]
enum Mend {
    /// The ledger says what the row says.
    Follow,
    /// The ledger forgets what is gone.
    Forget,
}
