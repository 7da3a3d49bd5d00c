-- Whether a delivery that was rescued is due in some lanes. ?1 lanes, ?2 now.
SELECT EXISTS (
    SELECT 1 FROM json_each(?1) AS lane
    CROSS JOIN outbox_delivery AS d INDEXED BY outbox_delivery_rescued ON d.integration = lane.value
    WHERE d.claim IS NULL AND d.state <> 'd' AND d.rescues > 0 AND d.due_at <= ?2
)
