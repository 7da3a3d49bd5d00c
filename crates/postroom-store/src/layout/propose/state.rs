//! What state a row is in, and how outcomes are written back.

use super::lines::{column, entry, set};
use super::{Rows, Timed, Unknown, names};
use postroom_core::StoreResult;

const FAILURES: &str = "# Failures stand in the ledger alone.";

impl<R: Rows> Unknown<'_, R> {
    pub(super) async fn state(&mut self, lines: &mut Vec<String>) -> StoreResult<()> {
        let dialect = self.dialect;
        if let Some(status) = self.named(names::STATUS, |kind| dialect.may_be_status(kind))
            && let Some(words) = self.words(status).await?
        {
            return self.by_status(status, &words, lines).await;
        }
        let is_nullable = |timed: &Timed<'_>| {
            let column = self.table.column(timed.name);
            column.is_some_and(|column| !column.is_required && !column.has_default)
        };
        if let Some(sent) = self.timed(names::SENT_AT).await?.filter(is_nullable) {
            let is_null = format!("{} IS NULL", column(self.dialect, sent.name));
            lines.push("[database.state]".to_owned());
            lines.push(entry(
                "status",
                &format!("CASE WHEN {is_null} THEN 'PENDING' ELSE 'SENT' END"),
            ));
            lines.push(entry("open", &is_null));
            lines.extend(sent.lines("sent_at"));
            lines.push(String::new());
            lines.push(FAILURES.to_owned());
            lines.push("[database.write]".to_owned());
            lines.push(set("sent", &[(sent.name, sent.written("at"))]));
            lines.push(set("reopened", &[(sent.name, "NULL".to_owned())]));
            return Ok(());
        }
        if let Some(name) = self.named(names::DONE, |kind| dialect.is_flag(kind)) {
            let done = column(self.dialect, name);
            lines.push("[database.state]".to_owned());
            lines
                .push(entry("status", &format!("CASE WHEN {done} THEN 'SENT' ELSE 'PENDING' END")));
            lines.push(entry("open", &format!("{done} IS NOT TRUE")));
            lines.push(String::new());
            lines.push(FAILURES.to_owned());
            lines.push("[database.write]".to_owned());
            lines.push(set("sent", &[(name, "true".to_owned())]));
            lines.push(set("reopened", &[(name, "false".to_owned())]));
            return Ok(());
        }
        lines.extend(
            [
                "[database.state]",
                "status = \"'PENDING'\"",
                "",
                "# No column says that a row was delivered. Either name one that marks it, which you add to the",
                "# table yourself, or have delivered rows DELETED. Nothing runs before you have chosen.",
                "[database.write]",
                "# sent = { delivered_at = \"$at\" }",
                "# sent = \"delete\"",
            ]
            .map(str::to_owned),
        );
        Ok(())
    }

    /// The values that a status column has or may have, if they tell what they mean.
    async fn words(&mut self, status: &str) -> StoreResult<Option<Words>> {
        let Some(status) = self.table.column(status) else { return Ok(None) };
        let found = self.rows.words(status).await?;
        let of = |known: &[&str]| {
            known
                .iter()
                .find_map(|word| found.iter().find(|value| value.to_lowercase() == *word))
                .cloned()
        };
        Ok(of(names::WAITS).map(|waits| Words {
            sent: of(names::DELIVERED),
            waits,
            held: of(names::HELD),
            dead: of(names::GIVEN_UP),
        }))
    }

    async fn by_status(
        &mut self,
        status: &str,
        words: &Words,
        lines: &mut Vec<String>,
    ) -> StoreResult<()> {
        let dialect = self.dialect;
        let text = |value: &str| format!("'{}'", value.replace('\'', "''"));
        let name = column(self.dialect, status);
        let sent = words.sent.as_deref().unwrap_or("SENT");
        let attempts = self.named(names::ATTEMPTS, |kind| dialect.is_count(kind));
        let due = self.timed(names::DUE).await?;
        let error = self.named(names::ERROR, |kind| dialect.is_text(kind));
        let sent_at = self.timed(names::SENT_AT).await?;
        let waits = text(&words.waits);
        lines.push("[database.state]".to_owned());
        if words.sent.is_none() {
            lines.push(format!(
                "# No row says what a delivered one is called: {} is a guess.",
                text(sent)
            ));
        }
        let is_retried = match attempts {
            Some(attempts) if due.is_some() => {
                format!(
                    "CASE WHEN {} > 0 THEN 'FAILED' ELSE 'PENDING' END",
                    column(self.dialect, attempts)
                )
            }
            _ => "'PENDING'".to_owned(),
        };
        let mut cases = format!("WHEN {waits} THEN {is_retried} WHEN {} THEN 'SENT'", text(sent));
        if let Some(dead) = &words.dead {
            cases.push_str(&format!(" WHEN {} THEN 'DEAD'", text(dead)));
        }
        let word = dialect.text(&name);
        lines.push(entry("status", &format!("CASE {word} {cases} ELSE {word} END")));
        lines.push(entry("open", &format!("{name} = {waits}")));
        if let Some(held) = &words.held {
            lines.push(
                "# What an older dispatcher was sending when the table was adopted.".to_owned(),
            );
            lines.push(entry("taken", &format!("{name} = {}", text(held))));
        }
        let writes_failures = words.dead.is_some() && attempts.is_some() && due.is_some();
        if let (true, Some(attempts), Some(due)) = (writes_failures, attempts, due) {
            lines.push(entry("attempts", &column(self.dialect, attempts)));
            lines.extend(due.lines("due_at"));
            lines.extend(error.map(|error| entry("last_error", &column(self.dialect, error))));
        }
        lines.extend(sent_at.iter().flat_map(|sent_at| sent_at.lines("sent_at")));
        lines.push(String::new());
        let is = |value: &str| (status, text(value));
        let mut sent = vec![is(sent)];
        sent.extend(sent_at.map(|sent_at| (sent_at.name, sent_at.written("at"))));
        let Some((attempts, due)) = attempts.zip(due).filter(|_| writes_failures) else {
            lines.push(FAILURES.to_owned());
            lines.push("[database.write]".to_owned());
            lines.push(set("sent", &sent));
            lines.push(set("reopened", &[is(&words.waits)]));
            return Ok(());
        };
        let count = (attempts, "$attempts".to_owned());
        let again = (due.name, due.written("due"));
        let why: Vec<_> = error.map(|name| (name, "$error".to_owned())).into_iter().collect();
        let dead = words.dead.as_deref().unwrap_or_default();
        lines.push("[database.write]".to_owned());
        lines.push(set("sent", &sent));
        let failed = [vec![is(&words.waits), count.clone(), again.clone()], why.clone()].concat();
        lines.push(set("failed", &failed));
        lines.push(set("dead", &[vec![is(dead), count], why].concat()));
        lines.push(set("reopened", &[is(&words.waits), (attempts, "0".to_owned()), again.clone()]));
        let postponed = match words.held {
            Some(_) => vec![is(&words.waits), again],
            None => vec![again],
        };
        lines.push(set("postponed", &postponed));
        Ok(())
    }
}

/// What values of a status column mean.
struct Words {
    waits: String,
    sent: Option<String>,
    held: Option<String>,
    dead: Option<String>,
}
