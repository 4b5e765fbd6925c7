/// The broker that a bus connects to.
public struct BrokerChoice: Sendable {
    enum Kind {
        case running(folder: String?)
        case runningElsePrivate(folder: String?, PrivateBrokerOptions)
        case privateBroker(PrivateBrokerOptions)
    }

    let kind: Kind

    /// The user's broker, found as the command `earshot` finds it.
    ///
    /// Its runtime folder is `EARSHOT_RUNTIME`, else `earshot` in `XDG_RUNTIME_DIR`, else `earshot-UID` in the folder
    /// for temporary files.
    public static let running = BrokerChoice(kind: .running(folder: nil))

    /// Selects the broker of a runtime folder.
    ///
    /// - Parameter folder: path of the folder, as of `earshot serve --runtime`. A socket path limits it to about 100
    ///   bytes.
    public static func running(in folder: String) -> BrokerChoice { BrokerChoice(kind: .running(folder: folder)) }

    /// Selects the user's broker if it runs when the bus connects, otherwise a private broker.
    ///
    /// - Parameters:
    ///   - folder: runtime folder of the user's broker; nil selects it as ``running`` does.
    ///   - options: options of the private broker.
    public static func runningElsePrivate(
        in folder: String? = nil, _ options: PrivateBrokerOptions = PrivateBrokerOptions()
    ) -> BrokerChoice {
        BrokerChoice(kind: .runningElsePrivate(folder: folder, options))
    }

    /// Selects a private broker: a broker with its own workers, for this bus only.
    ///
    /// It ends with the bus, also when the program is killed. It has no durable requests, and no cache unless
    /// ``PrivateBrokerOptions/cacheFolder`` is set.
    ///
    /// - Parameter options: program, number of workers and cache folder.
    public static func privateBroker(_ options: PrivateBrokerOptions = PrivateBrokerOptions()) -> BrokerChoice {
        BrokerChoice(kind: .privateBroker(options))
    }

    /// A private broker with default options.
    public static let privateBroker = BrokerChoice.privateBroker()
}
