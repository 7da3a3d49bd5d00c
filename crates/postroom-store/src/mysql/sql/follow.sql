
-- Deliveries that are locked say what their messages say, and are free. {since}, {rescues}, {dispatches} that
-- are over with it.
ON DUPLICATE KEY UPDATE
    seq = VALUES(seq), since = {since}, due_at = VALUES(due_at), state = VALUES(state),
    integration = VALUES(integration), claim = NULL, rescues = {rescues},
    dispatch = outbox_delivery.dispatch + {dispatches}
