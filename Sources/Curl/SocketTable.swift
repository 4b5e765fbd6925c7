internal import CLibCurl
internal import Glibc

/// Sockets of a multi handle's connections, by the endpoints of the connections. Before a request, libcurl reports the
/// endpoints but not the socket. It reports the end of each connection. A descriptor has at most one entry.
struct SocketTable {
    /// Digest of a connection's two endpoints. Hashed with the process's random key, so that a peer cannot cause
    /// collisions.
    struct Ends: Hashable {
        private let digest: Int

        /// - Parameters: Numeric addresses, and ports.
        init(address: UnsafePointer<CChar>, port: Int32, ownAddress: UnsafePointer<CChar>, ownPort: Int32) {
            var hasher = Hasher()
            hasher.combine(port)
            hasher.combine(ownPort)
            unsafe hasher.combine(bytes: UnsafeRawBufferPointer(start: address, count: strlen(address)))
            unsafe hasher.combine(bytes: UnsafeRawBufferPointer(start: ownAddress, count: strlen(ownAddress)))
            digest = hasher.finalize()
        }
    }

    private var descriptors: [Ends: Int32] = [:]
    private var endsByDescriptor: [Int32: Ends] = [:]

    /// Records the socket of a new connection.
    ///
    /// - Parameters:
    ///   - opened: Sockets opened for it: one per attempted address.
    ///   - ownPort: Local port of the connected socket.
    mutating func note(opened: [Int32], ownPort: Int32, ends new: Ends) {
        let descriptor = opened.count == 1 ? opened[0] : opened.last { curlshim_local_port($0) == ownPort }
        guard let descriptor else { return }
        // The number belonged to another connection, which is closed.
        if let old = endsByDescriptor.updateValue(new, forKey: descriptor), descriptors[old] == descriptor {
            descriptors[old] = nil
        }
        descriptors[new] = descriptor
    }

    /// Number of open connections that have carried a request.
    var count: Int { endsByDescriptor.count }

    /// Removes a connection whose socket is being closed.
    mutating func remove(_ descriptor: Int32) {
        guard let old = endsByDescriptor.removeValue(forKey: descriptor), descriptors[old] == descriptor else { return }
        descriptors[old] = nil
    }

    /// Returns whether an idle connection is open and has no input. Takes one system call.
    func isQuiet(_ ends: Ends) -> Bool {
        guard let descriptor = descriptors[ends] else { return false }
        return curlshim_is_quiet(descriptor) != 0
    }
}
