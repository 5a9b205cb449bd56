import { useQuery } from "@tanstack/react-query";
import { bannerQuery } from "@/api/policies";
import { getLanguage } from "@/i18n";

/** The notice that people read before they sign in. */
export function Banner() {
  const { data } = useQuery(bannerQuery(getLanguage()));
  return data ? <BannerText title={data.title} text={data.text} /> : null;
}

export function BannerText({ title, text }: { title: string; text: string }) {
  return (
    <section className="max-h-[50dvh] space-y-1.5 overflow-y-auto rounded-xl border border-warn-line bg-warn-soft px-4 py-3 text-sm text-warn-ink">
      <h2 className="font-semibold break-words">{title}</h2>
      <p className="break-words whitespace-pre-line">{text}</p>
    </section>
  );
}
