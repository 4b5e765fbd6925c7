public import EarshotHTTP
internal import IDN2

extension HostNameEncoder {
    /// Encoder based on libidn2, which is loaded on first use.
    public static let international = HostNameEncoder { name throws(Failure) in
        do throws(DomainNameError) { return try DomainName.ascii(name) } catch { throw Failure(error.detail) }
    }
}
