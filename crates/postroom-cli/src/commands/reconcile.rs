//! `postroom reconcile`: makes messages and deliveries agree.

use super::outbox;
use crate::args::Reconcile;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output;
use postroom_core::{NewAction, Operation, Reconciled};

pub(super) async fn run(args: &Reconcile, origin: &Origin<'_>) -> Result<(), Failure> {
    let actor = args.actor.name()?;
    let store = outbox::open(&outbox::named(origin, args.json)?).await?;
    let action = NewAction { actor: &actor, operation: Operation::Reconcile, target: "the outbox" };
    let action = store.begin_action(&action).await?;
    let mended = store.reconcile().await?;
    store.note_action(action, mended.total()).await?;
    if args.json {
        return Ok(output::print_json(&mended)?);
    }
    if mended.total() == 0 {
        return Ok(output::print("nothing to mend: messages and deliveries agree\n")?);
    }
    let Reconciled { made, removed, freed, followed, advanced, numbered } = mended;
    let mut text = format!(
        "{made} deliveries made for open messages, {removed} without an open message removed, \
         {freed} freed from claims that do not exist, {followed} made to say what their messages \
         say\n"
    );
    if advanced + numbered > 0 {
        text.push_str(&format!(
            "{advanced} sequence that was behind moved on, {numbered} messages that shared a number, \
             or were in two parcels, put right\n"
        ));
    }
    Ok(output::print(&text)?)
}
