/// TLS sessions of running transfers, and the last alert of each one's peer: close_notify, without which libcurl accepts
/// the end of a connection as the end of a body all the same, or an error.
///
/// Numbers are never reused. The address of a session may be reused for another one before the end of the first
/// transfer is evaluated.
struct TLSSessions {
    /// The last alert by session number, -1 without one. At most one entry per running transfer.
    private var sessions: [UInt: Int] = [:]
    private var lastNumber: UInt = 0

    /// - Returns: Number of a new session.
    mutating func enter() -> UInt {
        lastNumber += 1
        sessions[lastNumber] = -1
        return lastNumber
    }

    /// Records an alert of a session. Ignores a session whose transfer has ended.
    mutating func note(alert: Int, of number: UInt) {
        if sessions[number] != nil { sessions[number] = alert }
    }

    /// Removes a session. - Returns: Its peer's last alert; nil without one.
    mutating func leave(_ number: UInt) -> Int? {
        sessions.removeValue(forKey: number).flatMap { $0 < 0 ? nil : $0 }
    }
}
