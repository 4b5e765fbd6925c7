internal import EarshotHTTP
internal import EarshotWire
internal import Logging

/// The broker's terms for jobs, from its LIMITS. A class, because each run refers to it.
final class Terms {
    let maximumInlineBodyBytes: Int
    /// Nil for a broker on another machine, or if the folder cannot be used.
    let spool: SpoolFolder?
    /// Maximum size of a body in bytes: that of a message for a broker on another machine.
    let maximumBodyBytes: Int
    /// Policies for addresses to connect to: none, or one that restricts them.
    let addressPolicies: [AddressPolicy]
    /// Maximum number of decoded bytes for each encoded byte; 0 for no limit.
    let maximumDecodingRatio: Int
    /// Maximum size of the body of an error page or a followed redirect, in bytes.
    let maximumErrorPageBytes: Int

    init(_ limits: WorkerLimits, spool: SpoolFolder?, logger: Logger) {
        maximumInlineBodyBytes = limits.maximumInlineBodyBytes
        self.spool = spool
        maximumBodyBytes = limits.spoolPath.isEmpty ? limits.maximumInlineBodyBytes : .max
        let policy: AddressPolicy
        do throws(AddressPolicy.ParseError) {
            policy = try AddressPolicy(limits.addressPolicy)
        } catch {
            logger.error("cannot parse the address policy; all addresses are denied", metadata: ["error": "\(error)"])
            policy = .denyAll
        }
        addressPolicies = policy.isRestricting ? [policy] : []
        maximumDecodingRatio = limits.maximumDecodingRatio
        maximumErrorPageBytes = limits.maximumErrorPageBytes ?? .max
    }
}
