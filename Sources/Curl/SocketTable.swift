internal import CLibCurl
internal import Glibc

/// Sockets of a multi handle's connections, by the endpoints of the connections. Before a request, libcurl reports the
/// endpoints but not the socket. It reports the end of each connection. A descriptor has at most one entry.
struct SocketTable {
    /// Digest of a connection's two endpoints. Hashed with the process's random key, so that a peer cannot cause
    /// collisions.
    struct EndpointPair: Hashable {
        private let endpointDigest: Int

        /// - Parameters: Numeric addresses, and ports.
        init(address: UnsafePointer<CChar>, port: Int32, ownAddress: UnsafePointer<CChar>, ownPort: Int32) {
            var hasher = Hasher()
            hasher.combine(port)
            hasher.combine(ownPort)
            unsafe hasher.combine(bytes: UnsafeRawBufferPointer(start: address, count: strlen(address)))
            unsafe hasher.combine(bytes: UnsafeRawBufferPointer(start: ownAddress, count: strlen(ownAddress)))
            endpointDigest = hasher.finalize()
        }
    }

    private var descriptors: [EndpointPair: Int32] = [:]
    private var endpointsByDescriptor: [Int32: EndpointPair] = [:]

    /// Records the socket of a new connection.
    ///
    /// - Parameters:
    ///   - sockets: Sockets opened for it: one per attempted address.
    ///   - ownPort: Local port of the connected socket.
    mutating func recordConnection(sockets: [Int32], ownPort: Int32, endpoints new: EndpointPair) {
        let descriptor = sockets.count == 1 ? sockets[0] : sockets.last { curlshim_local_port($0) == ownPort }
        guard let descriptor else { return }
        // The number belonged to another connection, which is closed.
        if let old = endpointsByDescriptor.updateValue(new, forKey: descriptor), descriptors[old] == descriptor {
            descriptors[old] = nil
        }
        descriptors[new] = descriptor
    }

    /// Number of open connections that have carried a request.
    var count: Int { endpointsByDescriptor.count }

    /// Removes a connection whose socket is being closed.
    mutating func remove(_ descriptor: Int32) {
        guard let old = endpointsByDescriptor.removeValue(forKey: descriptor), descriptors[old] == descriptor else {
            return
        }
        descriptors[old] = nil
    }

    /// Returns whether an idle connection is open and has no input. Takes one system call.
    func isIdleConnectionUsable(_ ends: EndpointPair) -> Bool {
        guard let descriptor = descriptors[ends] else { return false }
        return curlshim_is_quiet(descriptor) != 0
    }
}
