-- The attempts of a message that leaves. {seq}.
DELETE FROM outbox_attempt WHERE seq = {seq}
