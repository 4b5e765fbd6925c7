internal import CLibCurl
internal import Glibc

/// The sockets of a multi handle's connections, by the connections' two ends: before a request libcurl tells its ends,
/// and not its socket. libcurl reports the end of each connection, and a descriptor has one entry at most.
struct SocketTable {
    /// Digest of a connection's two ends. Hashed under the process's random key, so that no peer can make two connections
    /// look alike.
    struct Ends: Hashable {
        private let digest: Int

        /// - Parameters: numeric addresses, and ports.
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
    private var ends: [Int32: Ends] = [:]

    /// Notes the socket of a new connection.
    ///
    /// - Parameters:
    ///   - opened: the sockets that were opened for it: one, or one for each address that was tried.
    ///   - ownPort: the port of the one that is left.
    mutating func note(opened: [Int32], ownPort: Int32, ends new: Ends) {
        let descriptor = opened.count == 1 ? opened[0] : opened.last { curlshim_local_port($0) == ownPort }
        guard let descriptor else { return }
        // The number had another connection, which is closed.
        if let old = ends.updateValue(new, forKey: descriptor), descriptors[old] == descriptor {
            descriptors[old] = nil
        }
        descriptors[new] = descriptor
    }

    /// Number of open connections that have carried a request.
    var count: Int { ends.count }

    /// Removes a connection whose socket closes.
    mutating func remove(_ descriptor: Int32) {
        guard let old = ends.removeValue(forKey: descriptor), descriptors[old] == descriptor else { return }
        descriptors[old] = nil
    }

    /// Whether a connection that was used before is open and has nothing to read. One system call.
    func isQuiet(_ ends: Ends) -> Bool {
        guard let descriptor = descriptors[ends] else { return false }
        return curlshim_is_quiet(descriptor) != 0
    }
}
