-- Deletes parcels by their whole key, so that no other row is locked. A DELETE takes the name of an index
-- only in this form. {parcels}.
DELETE p FROM outbox_parcel AS p FORCE INDEX (PRIMARY) WHERE {parcels}
