/// How a transfer ended, and what libcurl measured of it.
public struct TransferResult: Hashable, Sendable {
    /// When each step was done, counted from the start; zero for a step that was not reached or not needed.
    public struct Timings: Hashable, Sendable {
        public let nameLookup: Duration
        public let connect: Duration
        public let tlsHandshake: Duration
        public let firstByte: Duration
        public let total: Duration
    }

    /// Nil for a whole response, whatever its status.
    public let failure: TransferFailure?
    /// The last status line's code; 0 if none came.
    public let status: Int
    /// The system's error number of the last connect that failed, else 0.
    public let osError: Int32
    public let timings: Timings
    /// How many connections were opened for it: 0 when one was used again.
    public let connectsMade: Int
    /// The address of the other end, numeric; empty if there was no connection.
    public let primaryAddress: String
    /// libcurl's sentence about the failure, empty if it had none. It can hold what the peer sent: escape it.
    public let detail: String
}
