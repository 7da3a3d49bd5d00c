-- Ends a settlement of SENT: which of the messages in $2 are not among the `changed`. Mostly none, and then
-- none is looked at. A null says that this did not end the claim.
SELECT said.id FROM unnest($2::/*id*/uuid[]) AS said (id)
WHERE (SELECT count(*) FROM changed) < cardinality($2::/*id*/uuid[])
  AND (said.id IN (SELECT id FROM changed)) IS NOT TRUE
UNION ALL
SELECT NULL FROM mine WHERE NOT EXISTS (SELECT FROM whole)
