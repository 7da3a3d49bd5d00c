-- A message that was delivered, where no history is kept. {seq}.
DELETE FROM integration_outbox WHERE seq = {seq}
