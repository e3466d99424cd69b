"""The quorum on the network, in Kafka's messages: `quorum_peers` asks other nodes, `quorum_api` answers them."""
