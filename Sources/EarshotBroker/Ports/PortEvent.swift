internal import EarshotLoop

/// What a port tells the broker, in this order for each peer: messages, then its loss.
enum PortEvent {
    case connected(peer: UInt64, isRequestReply: Bool)
    case message(peer: UInt64, head: [UInt8], body: [UInt8]?)
    /// A message of more frames than the protocol has.
    case surplus(peer: UInt64, head: [UInt8])
    /// `pid`: its process; 0 if the kernel did not tell. `process`: a hold on that, if it lives on.
    case lost(peer: UInt64, pid: Int32, process: ProcessDescriptor?)
}
