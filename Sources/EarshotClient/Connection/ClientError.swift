internal import EarshotLoop

/// Why a client could not be made, or would not take a request.
public struct ClientError: Error, Equatable, CustomStringConvertible {
    /// What kind of trouble it is; more may come.
    public struct Code: Hashable, Sendable {
        let name: String

        /// The request cannot be said on the wire: see the description.
        public static let invalidRequest = Code(name: "invalid-request")
        /// The runtime or spool folder cannot be used.
        public static let folder = Code(name: "folder")
        /// A path does not fit into a socket's address.
        public static let pathTooLong = Code(name: "path-too-long")
    }

    public let code: Code
    /// A sentence; holds paths of this machine, nothing a peer supplied.
    public let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }

    init(_ error: FolderError) { self.init(.folder, error.description) }
}
