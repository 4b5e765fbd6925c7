/// Which broker a bus connects to.
public struct BrokerChoice: Sendable {
    enum Kind {
        case running(folder: String?)
        case runningElsePrivate(folder: String?, PrivateBrokerOptions)
        case privateBroker(PrivateBrokerOptions)
    }

    let kind: Kind

    /// The user's broker: that in the folder of `EARSHOT_RUNTIME`, else in `earshot` in `XDG_RUNTIME_DIR`, as the
    /// command `earshot` finds it.
    public static let running = BrokerChoice(kind: .running(folder: nil))

    /// The broker in a runtime folder.
    public static func running(in folder: String) -> BrokerChoice { BrokerChoice(kind: .running(folder: folder)) }

    /// The user's broker if one runs, else one for this bus alone.
    ///
    /// - Parameter folder: the runtime folder to look in; nil for the user's.
    public static func runningElsePrivate(
        in folder: String? = nil, _ options: PrivateBrokerOptions = PrivateBrokerOptions()
    ) -> BrokerChoice {
        BrokerChoice(kind: .runningElsePrivate(folder: folder, options))
    }

    /// A broker for this bus alone, with workers of its own. It ends with the bus, also when the program is killed.
    public static func privateBroker(_ options: PrivateBrokerOptions = PrivateBrokerOptions()) -> BrokerChoice {
        BrokerChoice(kind: .privateBroker(options))
    }

    /// As ``privateBroker(_:)`` without options.
    public static let privateBroker = BrokerChoice.privateBroker()
}
