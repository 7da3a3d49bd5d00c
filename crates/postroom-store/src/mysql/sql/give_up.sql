-- Gives up claims of which their relay has nothing in hand. They name nobody, and losing them counts for nothing.
-- {nobody}, {tokens}, {relay}.
UPDATE outbox_claim FORCE INDEX (PRIMARY)
SET relay = {nobody}, alone = FALSE, dispatched = TRUE
WHERE token IN ({tokens}) AND relay = {relay}
