"""The handlers of the broker's listeners, a room for each family of APIs. `registry` knows them all."""
