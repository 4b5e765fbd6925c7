/// Comparison of secrets in constant time, for proofs of gateways and tokens of HTTP clients.
package enum ConstantTime {
    /// Returns whether the bytes are equal. The duration depends on the lengths only, and does not reveal the first
    /// difference.
    package static func isEqual(_ left: some Collection<UInt8>, _ right: some Collection<UInt8>) -> Bool {
        left.count == right.count && zip(left, right).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0
    }
}
