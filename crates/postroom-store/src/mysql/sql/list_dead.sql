-- Numbers of messages that are dead, or that somebody has changed by hand, newest first. {below} which
-- number, {rows}.
SELECT seq FROM (
    (SELECT seq FROM outbox_delivery
     WHERE seq < {below} AND queue = 3 ORDER BY seq DESC LIMIT {rows})
    UNION
    (SELECT o.seq FROM outbox_pending_edit AS e
     JOIN integration_outbox AS o FORCE INDEX (outbox_id) ON o.id = e.message_id
     WHERE o.seq < {below} ORDER BY o.seq DESC LIMIT {rows})
) AS found ORDER BY seq DESC LIMIT {rows}
