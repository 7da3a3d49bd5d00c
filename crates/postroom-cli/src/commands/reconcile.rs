//! `postroom reconcile`: makes messages and deliveries agree.

use super::each::each_open;
use super::outbox;
use crate::args::Reconcile;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output;
use postroom_core::{NewAction, Operation, Reconciled, Store};

pub(super) async fn run(args: &Reconcile, origin: &Origin<'_>) -> Result<(), Failure> {
    let actor = args.actor.name()?;
    let databases = outbox::all(origin, args.json)?;
    let mended = each_open(&databases, async |store| reconcile(&actor, &*store).await).await?;
    if args.json {
        mended.print_objects(|mended| *mended)?;
        return mended.end();
    }
    for one in &mended.each {
        let name = one.name.as_ref().map_or_else(String::new, |name| format!("{name}: "));
        output::print(&format!("{name}{}", describe(&one.found)))?;
    }
    mended.end()
}

async fn reconcile(actor: &str, store: &dyn Store) -> Result<Reconciled, Failure> {
    let action = NewAction { actor, operation: Operation::Reconcile, target: "the outbox" };
    let action = store.begin_action(&action).await?;
    let mended = store.reconcile().await?;
    store.note_action(action, mended.total()).await?;
    Ok(mended)
}

fn describe(mended: &Reconciled) -> String {
    if mended.total() == 0 {
        return "nothing to mend: messages and deliveries agree\n".to_owned();
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
    text
}
