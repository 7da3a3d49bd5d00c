-- Messages that failed or died. {status}, {due_at} and {attempts} by number, {at}, {token}; the errors and
-- the numbers follow. A count set by hand to the end of its type must not stop everyone else's outcome.
UPDATE integration_outbox FORCE INDEX (PRIMARY)
SET status = {status}, due_at = {due_at}, updated_at = {at}, settled = {token},
    attempts = LEAST({attempts}, 2147483647),
    last_error = CASE seq
