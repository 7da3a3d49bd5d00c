-- The claim on a delivery. Id, worker.
SELECT d.claim, d.seq FROM outbox_delivery AS d
JOIN outbox_claim AS c ON c.token = d.claim
WHERE d.message_id = ? AND c.worker = ?
