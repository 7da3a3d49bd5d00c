//! `postroom reconcile`: makes messages and deliveries agree.

use super::outbox;
use crate::args::Show;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output;
use postroom_core::Reconciled;

pub(super) async fn run(args: &Show, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&origin.database()?).await?;
    let mended = store.reconcile().await?;
    if args.json {
        return Ok(output::print_json(&mended)?);
    }
    if mended.total() == 0 {
        return Ok(output::print("nothing to mend: messages and deliveries agree\n")?);
    }
    let Reconciled { made, removed, freed } = mended;
    Ok(output::print(&format!(
        "{made} deliveries made for open messages, {removed} without an open message removed, \
         {freed} freed from claims that do not exist\n"
    ))?)
}
