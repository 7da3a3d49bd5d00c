-- Deliveries that failed and that a claim holds; a clause that locks may follow. {seqs}, {token}.
SELECT message_id, seq FROM outbox_delivery FORCE INDEX (outbox_delivery_number)
WHERE seq IN ({seqs}) AND claim = {token} AND state = 'f'
