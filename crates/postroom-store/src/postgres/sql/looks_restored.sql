-- Whether the outbox looks restored: how far the numbers in use are ahead of their sequences, and whether there
-- are messages without any trace of a ledger. Their triggers were off, and no relay has taken anything here
-- since: the first one makes the cursors. A ledger that was drained has cursors, so nobody has to look through
-- its history. Nor where there are none: a few rows tell messages from rows whose status nobody knows.
SELECT core_outbox.numbers_behind() AS behind,
       NOT EXISTS (SELECT FROM core_outbox.lane_cursor)
           AND NOT EXISTS (SELECT FROM core_outbox.parcel)
           AND NOT EXISTS (SELECT FROM core_outbox.delivery)
           AND EXISTS (
               SELECT FROM (SELECT status FROM core_outbox.integration_outbox LIMIT 1000) AS m
               WHERE m.status = 'SENT' OR core_outbox.is_waiting(m.status)
           ) AS lacks_ledger
