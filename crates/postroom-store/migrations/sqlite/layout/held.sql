EXISTS (
          SELECT 1 FROM outbox_claim AS c
          WHERE c.lowest <= {old.seq} AND c.highest >= {old.seq}
            AND instr(c.parcels, json_quote({old.id})) > 0
            AND EXISTS (SELECT 1 FROM outbox_lane_cursor AS l
                        CROSS JOIN outbox_parcel AS p
                            ON p.integration = l.integration AND p.seq = {old.seq} AND p.message_id = {old.id})
      )
