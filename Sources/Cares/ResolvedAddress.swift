internal import CLibCares
internal import Glibc

/// Address of a host name, as `Resolver` returns it to the worker's `Names`.
public struct ResolvedAddress: Hashable, Sendable {
    /// Numeric address without brackets.
    public let text: String
    public let isIPv6: Bool
    /// Time to live; zero for an address from the hosts file.
    public let timeToLive: Duration

    /// - Returns: nil for an address of a family other than IPv4 and IPv6.
    init?(_ node: ares_addrinfo_node) {
        guard let text = unsafe Self.numeric(node) else { return nil }
        self.text = text
        isIPv6 = unsafe node.ai_family == AF_INET6
        timeToLive = unsafe .seconds(max(0, Int(node.ai_ttl)))
    }

    private static func numeric(_ node: ares_addrinfo_node) -> String? {
        guard let address = unsafe UnsafeRawPointer(node.ai_addr) else { return nil }
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        let capacity = socklen_t(text.count)
        let isWritten: Bool
        switch unsafe node.ai_family {
        case AF_INET:
            var bytes = unsafe address.loadUnaligned(as: sockaddr_in.self).sin_addr
            isWritten = unsafe inet_ntop(AF_INET, &bytes, &text, capacity) != nil
        case AF_INET6:
            var bytes = unsafe address.loadUnaligned(as: sockaddr_in6.self).sin6_addr
            isWritten = unsafe inet_ntop(AF_INET6, &bytes, &text, capacity) != nil
        default:
            isWritten = false
        }
        guard isWritten else { return nil }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
