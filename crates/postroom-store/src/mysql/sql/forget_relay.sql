-- A relay that has expired. {relay}.
DELETE FROM outbox_relay WHERE id = {relay} AND until < UTC_TIMESTAMP(6)
