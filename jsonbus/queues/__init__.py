"""TopicQueue and AsyncTopicQueue: a bounded queue per topic with many readers."""
