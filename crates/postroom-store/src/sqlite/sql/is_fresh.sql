-- Whether some lanes have a parcel above their mark, and whether they have one at all. ?1 lanes. A lane
-- without a cursor was never taken from.
SELECT EXISTS (
           SELECT 1 FROM json_each(?1) AS lane
           LEFT JOIN outbox_lane_cursor AS c ON c.integration = lane.value
           CROSS JOIN outbox_parcel AS p ON p.integration = lane.value
                                        AND p.seq > coalesce(c.mark, -9223372036854775808)
       ),
       EXISTS (
           SELECT 1 FROM json_each(?1) AS lane
           CROSS JOIN outbox_parcel AS p ON p.integration = lane.value
       )
