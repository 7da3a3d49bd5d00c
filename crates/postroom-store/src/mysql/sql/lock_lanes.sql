-- Locks a lane before anything is looked at, and says how far it was taken. One lane at a time, in the order
-- of their names: nobody waits in a circle, and nobody for a lane that is not meant. {lane}.
SELECT integration, mark FROM outbox_lane_cursor WHERE integration = {lane} FOR UPDATE
