/// The broker that a bus connects to: a running one, a private one, or a bus on a network.
public struct BrokerChoice: Sendable {
    enum Kind {
        case running(folder: String?)
        case runningElsePrivate(folder: String?, PrivateBrokerOptions)
        case privateBroker(PrivateBrokerOptions)
        case remote([BusEndpoint])
    }

    let kind: Kind

    /// The user's broker, found as the command `earshot` finds it.
    ///
    /// If `EARSHOT_BUS` is set, it is a bus on a network: see ``BusEndpoint/inEnvironment()``. Otherwise its runtime
    /// folder is `EARSHOT_RUNTIME`, else `earshot` in `XDG_RUNTIME_DIR`, else `earshot-UID` in the folder for temporary
    /// files if a bus runs there, else `/run/earshot` if the machine has a bus for several users.
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

    /// Selects the first of several buses that can be reached.
    ///
    /// Later buses serve while the earlier ones cannot be reached. ``BusEndpoint`` states addresses and keys.
    ///
    /// - Parameter endpoints: buses in the order of preference; at least one.
    public static func remote(_ endpoints: [BusEndpoint]) -> BrokerChoice { BrokerChoice(kind: .remote(endpoints)) }

    /// Selects a bus on a network.
    ///
    /// - Parameters:
    ///   - address: `tcp://HOST:PORT`.
    ///   - keyFile: path of the client's key file, as of `earshot key new`.
    ///   - serverKey: public key of the bus, or the path of its file.
    /// - Throws: `ClientError` if the address is invalid or a key is unusable.
    public static func remote(
        _ address: String, keyFile: String, serverKey: String
    ) throws(ClientError) -> BrokerChoice {
        .remote(try BusEndpoint.list([address], keyFile: keyFile, serverKeys: [serverKey]))
    }

    /// A private broker with default options.
    public static let privateBroker = BrokerChoice.privateBroker()
}
