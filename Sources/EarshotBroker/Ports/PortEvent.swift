internal import EarshotLoop

/// Event of a port. For each peer, the messages precede the loss.
enum PortEvent {
    case connected(peer: UInt64)
    case message(peer: UInt64, head: [UInt8], body: [UInt8]?)
    /// A message with more frames than the protocol allows.
    case surplus(peer: UInt64, head: [UInt8])
    /// `pid`: process ID of the peer; 0 if unknown. `process`: handle of the process if it is still alive.
    case lost(peer: UInt64, pid: Int32, process: ProcessDescriptor?)
}
