internal import EarshotHTTP
internal import EarshotWire
internal import Logging

/// The broker's terms for jobs, from its LIMITS. A class, because each run refers to it.
final class Terms {
    let inlineBytes: Int
    /// Nil for a broker on another machine, or if the folder cannot be used.
    let spool: SpoolFolder?
    /// Maximum size of a body in bytes: that of a message for a broker on another machine.
    let mostBytes: Int
    /// Policies for addresses to connect to: none, or one that restricts them.
    let policies: [AddressPolicy]
    /// Maximum number of decoded bytes for each encoded byte; 0 for no limit.
    let maxRatio: Int
    /// Maximum size of the body of an error page or a followed redirect, in bytes.
    let pageBytes: Int

    init(_ limits: WorkerLimits, spool: SpoolFolder?, logger: Logger) {
        inlineBytes = limits.inlineBytes
        self.spool = spool
        mostBytes = limits.spool.isEmpty ? limits.inlineBytes : .max
        let policy: AddressPolicy
        do throws(AddressPolicy.ParseError) {
            policy = try AddressPolicy(limits.addressPolicy)
        } catch {
            logger.error("cannot parse the address policy; all addresses are denied", metadata: ["error": "\(error)"])
            policy = .nothing
        }
        policies = policy.isRestricting ? [policy] : []
        maxRatio = limits.maxRatio
        pageBytes = limits.pageBytes ?? .max
    }
}
