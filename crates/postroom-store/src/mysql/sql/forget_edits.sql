-- A change that was followed, by its whole key: notes that others have not committed yet are not waited for.
-- {lane}, {id}.
DELETE FROM outbox_pending_edit WHERE integration = {lane} AND id = {id}
