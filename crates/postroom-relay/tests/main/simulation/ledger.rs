//! The laws of the ledger, checked at every step against what the store holds at that moment.
//!
//! They know nothing of how the store works, only where a message may stand: fresh in a parcel, or in a
//! delivery, which outranks a parcel, or with a producer that has not committed yet. Nobody changes
//! messages by hand in a simulation, so there are no pending edits.

use postroom_core::{Batch, MessageId, Take};
use postroom_store::memory::{Ledger, ParcelLook};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A ledger, by what is looked for in it.
struct Index<'a> {
    ledger: &'a Ledger,
    /// The claims that name a parcel.
    claims_on: BTreeMap<&'a (String, i64), Vec<usize>>,
    parcels_of: HashMap<MessageId, Vec<&'a ParcelLook>>,
    deliveries: HashSet<MessageId>,
}

impl<'a> Index<'a> {
    fn of(ledger: &'a Ledger) -> Self {
        let mut claims_on: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, claim) in ledger.claims.iter().enumerate() {
            for key in &claim.parcels {
                claims_on.entry(key).or_default().push(place);
            }
        }
        let mut parcels_of: HashMap<MessageId, Vec<&ParcelLook>> = HashMap::new();
        for parcel in &ledger.parcels {
            for id in &parcel.ids {
                parcels_of.entry(id.clone()).or_default().push(parcel);
            }
        }
        let deliveries = ledger.deliveries.iter().map(|delivery| delivery.id.clone()).collect();
        Self { ledger, claims_on, parcels_of, deliveries }
    }

    fn parcels_of(&self, id: &MessageId) -> &[&'a ParcelLook] {
        self.parcels_of.get(id).map_or(&[], Vec::as_slice)
    }

    fn is_held(&self, parcel: &ParcelLook) -> bool {
        self.claims_on.contains_key(&parcel.key)
    }
}

/// What is wrong with a ledger.
pub(super) fn broken_laws(ledger: &Ledger) -> Vec<String> {
    let index = Index::of(ledger);
    let mut broken = Vec::new();
    in_one_claim(&index, &mut broken);
    in_one_place(&index, &mut broken);
    nothing_uncommitted(&index, &mut broken);
    nothing_closed(&index, &mut broken);
    claims_make_sense(&index, &mut broken);
    broken
}

/// No message is in two live claims.
fn in_one_claim(index: &Index<'_>, broken: &mut Vec<String>) {
    for (key, claims) in &index.claims_on {
        if claims.len() > 1 {
            broken.push(format!("parcel {key:?} is in {} claims", claims.len()));
        }
    }
    for message in &index.ledger.messages {
        if index.deliveries.contains(&message.id) {
            continue;
        }
        let parcels = index.parcels_of(&message.id).iter();
        let claims = parcels.filter_map(|parcel| index.claims_on.get(&parcel.key)).flatten();
        if claims.count() > 1 {
            broken.push(format!("message {} is in two claims", message.seq));
        }
    }
}

/// Every open message is in one parcel or has a delivery. The parcel that it was delivered out of may
/// name it beside that only as long as a claim holds the parcel.
fn in_one_place(index: &Index<'_>, broken: &mut Vec<String>) {
    for message in &index.ledger.messages {
        if !matches!(message.status.as_str(), "PENDING" | "FAILED" | "DEAD") {
            continue;
        }
        let (seq, parcels) = (message.seq, index.parcels_of(&message.id));
        let has_delivery = index.deliveries.contains(&message.id);
        match parcels {
            [] if !has_delivery => broken.push(format!("message {seq} is lost to the ledger")),
            [parcel] if has_delivery && !index.is_held(parcel) => {
                broken.push(format!("message {seq} has a delivery and is fresh as well"));
            }
            [] | [_] => {}
            _ => broken.push(format!("message {seq} is in {} parcels", parcels.len())),
        }
        if message.status != "PENDING" && !has_delivery {
            broken.push(format!("message {seq} is {} and has no delivery", message.status));
        }
    }
}

/// Nobody sees what is not committed.
fn nothing_uncommitted(index: &Index<'_>, broken: &mut Vec<String>) {
    let there: HashSet<MessageId> =
        index.ledger.messages.iter().map(|message| message.id.clone()).collect();
    for id in &index.ledger.uncommitted {
        let is_named = index.deliveries.contains(id) || !index.parcels_of(id).is_empty();
        if is_named || there.contains(id) {
            broken.push(format!("message {id} is visible before its producer has committed"));
        }
    }
}

/// Nothing SENT is in the ledger, except in a parcel that a claim still holds; and nothing is there
/// that is no message.
fn nothing_closed(index: &Index<'_>, broken: &mut Vec<String>) {
    let messages = index.ledger.messages.iter();
    let statuses: HashMap<MessageId, &str> =
        messages.map(|message| (message.id.clone(), message.status.as_str())).collect();
    let is_open = |id: &MessageId| statuses.get(id).is_some_and(|status| *status != "SENT");
    for delivery in index.ledger.deliveries.iter().filter(|delivery| !is_open(&delivery.id)) {
        broken.push(format!("message {} has a delivery, and is SENT or gone", delivery.id));
    }
    for parcel in index.ledger.parcels.iter().filter(|parcel| !index.is_held(parcel)) {
        for id in parcel.ids.iter().filter(|id| !is_open(id)) {
            broken.push(format!("message {id} is fresh, and is SENT or gone"));
        }
    }
}

/// Claims name parcels that exist and that their lane's mark has reached; deliveries name claims that
/// exist.
fn claims_make_sense(index: &Index<'_>, broken: &mut Vec<String>) {
    let Ledger { parcels, deliveries, claims, marks, .. } = index.ledger;
    let there: BTreeSet<_> = parcels.iter().map(|parcel| &parcel.key).collect();
    for key in index.claims_on.keys() {
        if !there.contains(*key) {
            broken.push(format!("a claim names parcel {key:?}, which is gone"));
        }
        if !marks.iter().any(|(lane, mark)| *lane == key.0 && *mark >= key.1) {
            broken.push(format!("parcel {key:?} was taken, and its lane's mark is below it"));
        }
    }
    for token in deliveries.iter().filter_map(|delivery| delivery.claim) {
        if !claims.iter().any(|claim| claim.token == token) {
            broken.push(format!("a delivery is under {token:?}, which does not exist"));
        }
    }
}

/// What is wrong with what a take gave out, by the ledger after it: limits bound all batches together,
/// and a message out of a parcel has no delivery.
pub(super) fn wrong_with(batches: &[Batch], take: &Take<'_>, after: &Ledger) -> Vec<String> {
    let index = Index::of(after);
    let mut wrong = Vec::new();
    let messages = || batches.iter().flat_map(|batch| &batch.messages);
    if messages().count() > take.rows || batches.iter().any(|batch| batch.messages.is_empty()) {
        wrong.push("a take gave out too many messages, or an empty batch".to_owned());
    }
    for quota in take.quotas {
        let here = messages().filter(|one| one.message.integration == quota.integration).count();
        if here > quota.rows {
            wrong.push(format!("a take gave out {here} messages for {quota:?}"));
        }
    }
    for batch in batches {
        let claim = after.claims.iter().find(|claim| claim.token == batch.token);
        let is_of_parcels = claim.is_some_and(|claim| !claim.parcels.is_empty());
        for taken in &batch.messages {
            let (id, seq) = (taken.message.id.clone(), taken.message.seq);
            let delivery = after.deliveries.iter().find(|delivery| delivery.id == id);
            if is_of_parcels && delivery.is_some() {
                wrong.push(format!("message {seq} came out of a parcel and has a delivery"));
            }
            if !is_of_parcels && delivery.is_none_or(|one| one.claim != Some(batch.token)) {
                wrong.push(format!(
                    "message {seq} was given out, and nothing says under which claim"
                ));
            }
            let names_it = |parcel: &&ParcelLook| {
                claim.is_some_and(|claim| claim.parcels.contains(&parcel.key))
            };
            if is_of_parcels && !index.parcels_of(&id).iter().any(names_it) {
                wrong.push(format!("message {seq} is in no parcel of its claim"));
            }
        }
    }
    wrong
}

/// What a take of fresh messages was, in a word: for the journal.
pub(super) fn kinds(batches: &[Batch], before: &Ledger, after: &Ledger) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    let is_ours = |token| batches.iter().any(|batch| batch.token == token);
    let ours = || after.claims.iter().filter(|claim| is_ours(claim.token));
    let parcels: BTreeSet<_> = ours().flat_map(|claim| &claim.parcels).collect();
    let is_below = |key: &&(String, i64)| {
        before.marks.iter().any(|(lane, mark)| *lane == key.0 && key.1 <= *mark)
    };
    if parcels.iter().any(is_below) {
        kinds.push("swept");
    }
    let taken = after.parcels.iter().filter(|parcel| parcels.contains(&parcel.key));
    if taken.clone().any(|parcel| parcel.ids.len() > 1) {
        kinds.push("parcel of many");
    }
    let there: BTreeSet<_> = after.parcels.iter().map(|parcel| &parcel.key).collect();
    if before.parcels.iter().any(|parcel| !there.contains(&parcel.key)) {
        kinds.push("unpacked");
    }
    if ours().count() > 1 {
        kinds.push("both kinds");
    }
    kinds
}
