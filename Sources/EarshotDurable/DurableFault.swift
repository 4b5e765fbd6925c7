/// Problem of the durable requests to report to an administrator: a constant message, and details of this occurrence.
public enum DurableFault: Equatable, Sendable {
    /// The table or the folder of bodies cannot be opened, so this process refuses durable requests.
    case unavailable(error: String)
    /// The table was corrupt. It was moved aside with the bodies, and replaced.
    case damaged(error: String, movedTo: String)
    /// Bodies exist without a table. They were moved aside.
    case tableMissing(movedTo: String)
    /// Reading or writing fails. Reported at most once per minute.
    case failing(error: String)

    /// Message for the log.
    public var message: String {
        switch self {
        case .unavailable: "cannot store durable requests; they are refused"
        case .damaged: "the table of durable requests is corrupt; it was moved aside with its bodies and replaced"
        case .tableMissing: "the table of durable requests is missing; its bodies were moved aside"
        case .failing: "cannot read or write durable requests"
        }
    }

    /// Names and values of the details.
    public var details: [String: String] {
        switch self {
        case .unavailable(let error), .failing(let error): ["error": error]
        case .damaged(let error, let path): ["error": error, "moved-to": path]
        case .tableMissing(let path): ["moved-to": path]
        }
    }
}
