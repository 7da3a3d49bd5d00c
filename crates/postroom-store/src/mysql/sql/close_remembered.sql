-- They are over, without a delivery. {why}, {token}, {seqs}.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET status = 'SENT', sent_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6), settled = {token},
    last_error = '{why}'
WHERE seq IN ({seqs}) AND status IN ('PENDING', 'FAILED')
