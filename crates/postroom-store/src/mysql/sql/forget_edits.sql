-- Changes that were followed. {edits}: lanes with their numbers.
DELETE e FROM outbox_pending_edit AS e FORCE INDEX (PRIMARY) WHERE {edits}
