internal import Logging

/// Log lines about faults of the cache and of durable requests, which `BrokerProcess` writes.
extension Logger {
    /// Logs a problem of a store: a constant message, with the details of this occurrence as metadata.
    func report(_ message: String, _ details: [String: String]) {
        error("\(message)", metadata: details.mapValues { "\($0)" })
    }
}
